#!/bin/sh
# Capture the Kafka packets of one pod, and report on them. Your kubectl runs tcpdump in an ephemeral container:
#
#   pod-report.sh NAMESPACE POD [SECONDS [FILTER]] [-- OPTIONS of kafkatap report]
#   pod-report.sh kafka broker-0 60 'tcp port 9092 or tcp port 9093' -- --sections summary,latency
#
# The capture stays here, as POD-TIME.pcap. The container ends by itself; Kubernetes keeps its name in the pod.
# IMAGE: an image with tcpdump (default: nicolaka/netshoot). CONTEXT: one of kubectl's contexts.
set -eu
umask 077
[ $# -ge 2 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
namespace=$1 pod=$2
shift 2
seconds=60 filter='tcp port 9092'
if [ $# -gt 0 ] && [ "$1" != -- ]; then seconds=$1; shift; fi
if [ $# -gt 0 ] && [ "$1" != -- ]; then filter=$1; shift; fi
if [ $# -gt 0 ]; then shift; fi
case $seconds in '' | *[!0-9]*) echo "$0: $seconds is no number of seconds" >&2; exit 2 ;; esac

tap=kafkatap-$(date +%s) file=$pod-$(date +%Y%m%dT%H%M%S).pcap
root=$(mktemp)
trap 'rm -f "$root"' EXIT
k() { kubectl ${CONTEXT:+--context "$CONTEXT"} --namespace "$namespace" "$@"; }

# Only root captures, whatever the user of the pod. Where policies forbid that, capture on the node.
echo '{"securityContext": {"runAsUser": 0, "runAsNonRoot": false}}' >"$root"
k debug "$pod" --image="${IMAGE:-nicolaka/netshoot}" --container="$tap" --profile=netadmin --custom="$root" \
    --quiet -- sleep $((seconds + 120))

# state PATH: of the container.
state() { k get pod "$pod" -o "jsonpath={.status.ephemeralContainerStatuses[?(@.name=='$tap')].state.$1}"; }
tries=60
until [ -n "$(state running.startedAt)" ]; do
    tries=$((tries - 1))
    if [ $tries = 0 ] || [ -n "$(state terminated.reason)" ]; then
        echo "$0: the container $tap does not run: $(state waiting.message) $(state terminated.message)" >&2
        exit 1
    fi
    sleep 1
done

# No terminal: it would change bytes. timeout ends tcpdump, with 124 or, in busybox, 143.
echo "$0: capturing for $seconds s" >&2
code=0
k exec "$pod" -c "$tap" -- timeout "$seconds" tcpdump -i any -s 0 -U -w - "$filter" >"$file" || code=$?
case $code in 0 | 124 | 143) ;; *) echo "$0: the capture ended early" >&2 ;; esac
kafkatap report "$@" "$file"
