/* Makes programs that use OpenSSL as a shared library write a key log, without a change to them.
 *
 *   cc -shared -fPIC -o openssl_keylog.so openssl_keylog.c -ldl
 *   SSLKEYLOGFILE=keys.log LD_PRELOAD=./openssl_keylog.so PROGRAM
 *
 * It stands before SSL_CTX_new and SSL_CTX_new_ex, and sets the callback that OpenSSL (1.1.1 or later) has for secrets.
 * A program that sets a callback of its own replaces it. Each line is one write to a file opened for appending.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static void write_line(const void *connection, const char *line) {
    static int file = -1;
    const char *name = getenv("SSLKEYLOGFILE");
    (void)connection;
    if (file < 0 && name != NULL)
        file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file >= 0) {
        struct iovec parts[2] = {{(void *)line, strlen(line)}, {"\n", 1}};
        if (writev(file, parts, 2) < 0)
            return;
    }
}

/* The function behind ours. A library that was loaded at run time, as by Python, is not among the next ones. */
static void *next_function(const char *name) {
    static const char *libraries[] = {"libssl.so.3", "libssl.so.1.1"};
    void *found = dlsym(RTLD_NEXT, name);
    for (int number = 0; found == NULL && number < 2; number++) {
        void *library = dlopen(libraries[number], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL)
            found = dlsym(library, name);
    }
    return found;
}

static void *watched(void *context) {
    void (*set)(void *, void (*)(const void *, const char *)) = next_function("SSL_CTX_set_keylog_callback");
    if (context != NULL && set != NULL)
        set(context, write_line);
    return context;
}

void *SSL_CTX_new(const void *method) {
    void *(*next)(const void *) = next_function("SSL_CTX_new");
    return next == NULL ? NULL : watched(next(method));
}

void *SSL_CTX_new_ex(void *library, const char *properties, const void *method) {
    void *(*next)(void *, const char *, const void *) = next_function("SSL_CTX_new_ex");
    return next == NULL ? NULL : watched(next(library, properties, method));
}
