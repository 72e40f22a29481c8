#!/bin/sh
# A round that is played from its first upload to the alarm of its drift, all on this machine. It prints docs/played-round.md, and ends
# with an error where a step does not do what the page says. Needs curl.
set -eu
umask 077 # keys and tokens are for their owner alone
command -v curl > /dev/null || { echo 'played-round.sh: curl is missing' >&2; exit 3; }
server='' monitor=''
stop() { for p in $server $monitor; do kill "$p" 2> /dev/null || true; done; }
trap stop EXIT

say() { printf '%s\n' "$@" ''; }
# shown runs a command, and shows it with what it prints.
shown() {
  printf '```console\n$ %s\n' "$1"
  sh -c "$1" > out 2> err || { echo "played-round.sh: $1: exit code $?"; cat out err; exit 1; } >&2
  grep -h -e '^fmp-edge: round' err >> out || true
  cat out
  printf '```\n\n'
}
# refused runs a command that must fail with an exit code, and shows what it says.
refused() {
  printf '```console\n$ %s\n' "$2"
  code=0
  sh -c "$2" > out 2>&1 || code=$?
  [ "$code" = "$1" ] || { echo "played-round.sh: $2: exit code $code; want $1"; cat out; exit 1; } >&2
  cat out
  printf '```\n\n'
}
# holds checks that the last command printed a line.
holds() { grep -Eq -e "$1" out || { echo "played-round.sh: no line like $1 in:"; cat out; exit 1; } >&2; }
lacks() { ! grep -Eq -e "$1" out || { echo "played-round.sh: a line like $1 in:"; cat out; exit 1; } >&2; }
# above and below check metric $1 of the last command against $2.
above() { metric "$1" "$2" 1 || { echo "played-round.sh: $1 is not above $2 in:"; cat out; exit 1; } >&2; }
below() { metric "$1" "$2" -1 || { echo "played-round.sh: $1 is not below $2 in:"; cat out; exit 1; } >&2; }
metric() { awk -v m="$1" -v bound="$2" -v way="$3" '$1 == m && way * ($2 - bound) > 0 { ok = 1 } END { exit !ok }' out; }
# serve starts a server of the round with a state, and waits for its address.
serve() {
  : > serve.out # the address of the server before is not this one's
  fmp serve --round round.yaml --state "$1" --tls-self-signed --listen 127.0.0.1:0 --token-file readers.token > serve.out 2>> serve.log &
  server=$!
  until grep -q '^serving' serve.out; do kill -0 "$server"; sleep 0.1; done
  URL=$(sed -n 's/.* on //p' serve.out)
  export URL
}
halt() { kill "$server"; wait "$server" || true; server=''; }
# get fetches a path of the server as its readers do.
get() { curl -fsS --cacert "$state/server.crt" -H "Authorization: Bearer $(cat readers.token)" "$URL$1"; }
# version waits until version $1 is the last.
version() { until get /v1/rounds/1/versions | grep -q "\"version\": *$1[,}]"; do kill -0 "$server"; sleep 0.2; done; }

say '# A round that is played' \
  '<!-- written by go test ./docs/examples -run PlayedRound -update, from what docs/examples/played-round.sh prints -->' \
  'Five sites, one of them with DICOM, make a classifier, score it, take an upload back, and see its images drift. Every line was run, and its output is below it.
The images are drawn by `fmp`, so that `sh docs/examples/played-round.sh` plays it again anywhere in about a minute, and fails where a step does not do what it says.'

say '## Images of five sites' 'Each has images to learn from and, in `test`, some to score the classifier. Site 3 has DICOM files of 16-bit grey.'
shown 'for i in 1 2 4 5; do fmp data synth -o site-$i --photos --seed $i --train 40 --test 400; done'
shown 'fmp data synth -o site-3 --dicom --seed 3 --train 40 --test 400'

say '## The round' 'The operator makes the client graph, the keys and the round, and starts the server.'
shown 'fmp fuse --dataset digits -o client.onnx'
shown 'fmp keys site-1 site-2 site-3 site-4 site-5 --dir keys --roster roster.txt'
cat > round.yaml << END
round: 1
title: Digits of five sites
client_graph: client.onnx
roster: roster.txt
deadline: 2100-03-31T18:00:00Z
quorum: 4
accept_late: true
rebuild_interval: 1s
END
shown 'cat round.yaml'
od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > readers.token
state=state
serve state
say '`URL` is the address that `fmp serve --round round.yaml --tls-self-signed --token-file readers.token` prints. Four sites take part:'
for i in 1 2 3 4; do
  shown "fmp-edge join \$URL --ca state/server.crt --key keys/site-$i.key site-$i/train"
  holds 'receipt'
done
version 1

say '## One comes late' 'The operator ends the round: the deadline is now. The fifth upload comes after it, and still counts.'
halt
sed "s/^deadline: .*/deadline: $(date -u +%Y-%m-%dT%H:%M:%SZ)/" round.yaml > ended.yaml
mv ended.yaml round.yaml
sleep 1
serve state
shown 'fmp-edge join $URL --ca state/server.crt --key keys/site-5.key site-5/train'
version 2
get /v1/rounds/1/classifier.onnx > second.onnx

say '## All score it' 'Each site scores the classifier on its own images, and sends counts.'
for i in 1 2 3 4 5; do
  shown "fmp-edge evaluate --model second.onnx --key keys/site-$i.key --report-to \$URL --ca state/server.crt site-$i/test"
  holds 'has these counts'
done
get /v1/rounds/1/evaluation > pooled.json
shown 'fmp evaluate second.onnx --pooled pooled.json'
for i in 1 2 3 4 5; do holds "site-$i"; done

say '## One withdraws' 'The upload of site 4 is deleted, its report too, and a version without it takes the place of those that held it.'
shown 'fmp-edge withdraw $URL --ca state/server.crt --key keys/site-4.key'
holds 'remains'
version 3
get /v1/rounds/1/classifier.onnx > classifier.onnx
curl -fsS --cacert state/server.crt "$URL/v1/rounds/1/notice" > second.onnx.notice
KEY=$(curl -fsS --cacert state/server.crt "$URL/v1/rounds" | sed -n 's/.*"server_key": *"\([^"]*\)".*/\1/p')
export KEY
say 'The server says which versions it superseded, in a notice that it signs. Beside the classifier, that notice stops its use:'
refused 1 'fmp predict second.onnx site-1/test --server-key $KEY'
holds 'superseded.*take version 3'
say 'Nor does the report of all sites hold what site 4 counted: it is of version 3, which nobody has scored yet. The four that are left score it.'
for i in 1 2 3 5; do
  fmp-edge evaluate --model classifier.onnx --key "keys/site-$i.key" --report-to "$URL" --ca state/server.crt "site-$i/test" > /dev/null
done
get /v1/rounds/1/evaluation > pooled.json
shown 'fmp evaluate classifier.onnx --pooled pooled.json --card card.md'
lacks 'site-4'
grep -q 'site-5' card.md
halt

say '## As if it had never taken part' 'The same round is played once more by the others alone. The classifiers are equal byte for byte.'
sed 's/^deadline: .*/deadline: 2100-03-31T18:00:00Z/' round.yaml > again.yaml
mv again.yaml round.yaml
mkdir never-keys
cp keys/site-?.key never-keys
state=never
serve never
for i in 5 3 2 1; do
  fmp-edge join "$URL" --ca never/server.crt --key "never-keys/site-$i.key" "site-$i/train" > /dev/null
done
version 1
get /v1/rounds/1/classifier.onnx > never.onnx
halt
shown 'sha256sum classifier.onnx never.onnx'
cmp classifier.onnx never.onnx

say '## Images drift at one site' 'Site 1 calibrates the classifier on labelled images of its own. It uses that behind its own program, which counts predictions, and bets against their being drawn like those that calibrated it.'
shown 'fmp calibrate classifier.onnx site-1/test -o calibrated.onnx'
fmp data synth -o camera --photos --seed 12 --train 1 --test 300 > /dev/null
fmp data synth -o other-camera --photos --seed 21 --variant digits-color --train 1 --test 100 > /dev/null
fmp predict --listen 127.0.0.1:0 calibrated.onnx > monitor.out 2> monitor.log &
monitor=$!
until grep -q '^predictions' monitor.out; do kill -0 "$monitor"; sleep 0.1; done
MONITOR=$(sed -n 's/.* on //p' monitor.out)
export MONITOR
# Images have their numbers in the order in which they were drawn.
cat > send.sh << 'END'
set -eu
for name in $(ls "$1"/test/*/* | sed 's|.*/||' | sort); do
  case $name in *.png) kind=image/png ;; *) kind=image/jpeg ;; esac
  curl -fsS -o last.json -H "Content-Type: $kind" --data-binary @"$(ls "$1"/test/*/"$name")" "$MONITOR/v1/predict"
done
END
say 'It gets 300 images of its camera, in the order in which they came. `fmp_drift_wealth_decades_highest` stays below 2:'
shown 'sh send.sh camera'
shown 'curl -fsS $MONITOR/metrics | grep -E "^fmp_(drift_(images|reference_images|.*highest)|predictions_total)"'
above 'fmp_drift_images{reference="calibration"}' 299
below 'fmp_drift_wealth_decades_highest{reference="calibration"}' 2
say 'Then a hundred images of another camera, in colour and before other grounds:'
shown 'sh send.sh other-camera'
shown 'curl -fsS $MONITOR/metrics | grep -E "^fmp_drift_(images|.*highest)"'
above 'fmp_drift_wealth_decades_highest{reference="calibration"}' 2
say 'By chance alone it ever reaches 2 with a probability of at most .01. The [page of monitoring](monitoring.md) says what to do: label some of the new images, and score them.'
shown 'fmp evaluate calibrated.onnx camera/test | grep -E "^  (ACC|ECE) "'
shown 'fmp evaluate calibrated.onnx other-camera/test | grep -E "^  (ACC|ECE) "'
