#!/bin/sh
# Write what has an address in the cluster to /hosts, for `kafkatap live --hosts`: hosts.sh [SECONDS between two writes]
#
# Without SECONDS it writes once, and always leaves files: if the API server does not answer, they name this node alone.
# A file is replaced whole, or stays as it was.
set -u
trap 'exit 0' TERM
dir=${HOSTS_DIR:-/hosts}
secrets=${SECRETS_DIR:-/var/run/secrets/kubernetes.io/serviceaccount}
case $KUBERNETES_SERVICE_HOST in
*:*) api="https://[$KUBERNETES_SERVICE_HOST]:$KUBERNETES_SERVICE_PORT" ;;
*) api="https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT" ;;
esac

# write KIND QUERY: the answer comes from the API server's cache (resourceVersion=0). The token is not in the arguments.
write() {
    printf 'header = "Authorization: Bearer %s"\n' "$(cat "$secrets/token")" |
        curl --silent --show-error --fail --config - --cacert "$secrets/ca.crt" --retry 2 --max-time 30 \
            --output "$dir/.$1" "$api/api/v1/$1?resourceVersion=0$2" &&
        mv "$dir/.$1" "$dir/$1.json"
}

# Finished pods have the addresses of others by now.
write_all() {
    write pods '&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed'
    write services ''
    write nodes ''
}

write_all
if [ $# = 0 ]; then
    address="{\"type\": \"InternalIP\", \"address\": \"$HOST_IP\"}"
    alone="{\"kind\": \"Node\", \"metadata\": {\"name\": \"$NODE_NAME\"}, \"status\": {\"addresses\": [$address]}}"
    for kind in pods services nodes; do
        [ -s "$dir/$kind.json" ] || printf '%s' "$alone" >"$dir/$kind.json"
    done
    exit 0
fi
while :; do
    sleep "$1" &
    wait $!
    write_all
done
