#!/bin/sh
# Tests a server on loopback from outside: Schemathesis sends what openapi.yaml allows and forbids, and tritonclient asks for predictions.
# Usage: run.sh FOLDER-OF-PROGRAMS (make service-test)
set -eu
umask 077
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cd "$work"
"$bin/fmp" fuse --dataset digits -o client.onnx
"$bin/fmp" keys a b --dir keys --roster roster.txt
"$bin/fmp" data synth -o images --photos --seed 1 --train 5 --test 5
od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > readers.token
printf 'round: 1\nclient_graph: client.onnx\nroster: roster.txt\ndeadline: 2100-01-01T00:00:00Z\nquorum: 1\nsamples: 20\n' > round.yaml
"$bin/fmp" serve --round round.yaml --listen 127.0.0.1:0 --token-file readers.token > serve.out 2> serve.log &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
while ! grep -q '^serving' serve.out; do
  kill -0 $server
  sleep 0.2
done
url=$(sed -n 's/.* on //p' serve.out)
"$bin/fmp-edge" join "$url" --key keys/a.key --cache graphs images/train
token=$(cat readers.token)
for _ in $(seq 60); do
  code=0
  "$here/venv/bin/python" "$here/triton.py" "${url#http://}" "$token" || code=$?
  [ $code = 2 ] || break # 2: there is no classifier yet
  sleep 1
done
[ $code = 0 ]
# Signatures are no part of OpenAPI: an upload that Schemathesis makes is refused with 401 or 403. Nor are the sizes of a classifier's input,
# so that what the schema allows may be refused (positive_data_acceptance).
SCHEMATHESIS_HOOKS="$here/hooks.py" "$here/venv/bin/st" run "$url/v1/openapi.yaml" --url "$url" -H "Authorization: Bearer $token" --max-examples "${EXAMPLES:-20}" \
  --generation-deterministic --exclude-checks positive_data_acceptance --request-timeout 20 --workers 1 --no-color || { tail -20 serve.log; exit 1; }
