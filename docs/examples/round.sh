#!/bin/sh
# A round between machines, all of them this one: docs/federate.md explains each line.
set -eu
umask 077 # keys and tokens are for their owner alone
fmp fuse --dataset digits -o client.onnx
fmp keys ward-1 ward-2 --dir keys --roster roster.txt
od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > readers.token
# Stands for the photographs of three wards, and for some that nobody trained on.
for ward in 1 2 3; do
  fmp data synth -o "ward-$ward" --photos --seed "$ward" --train 40 --test 5
done
fmp data synth -o new --photos --seed 9 --train 5 --test 50
cat > round.yaml <<END
round: 1
title: Digits
client_graph: client.onnx
roster: roster.txt
deadline: 2100-03-31T18:00:00Z
quorum: 3
min_uploads: 1
END
# The third ward makes its own key, and sends the line for the roster.
fmp-edge key --client ward-3 keys/ward-3.key >> roster.txt
fmp serve --round round.yaml --tls-self-signed --listen 127.0.0.1:0 --token-file readers.token > serve.out 2> serve.log &
server=$!
trap 'kill $server' EXIT
while ! grep -q '^serving' serve.out; do
  kill -0 $server
  sleep 0.2
done
url=$(sed -n 's/.* on //p' serve.out)
for ward in 1 2 3; do
  fmp-edge join "$url" --ca state/server.crt --key "keys/ward-$ward.key" --cache graphs "ward-$ward/train"
done
# The same again is the same receipt; after the quorum the classifier is there.
fmp-edge join "$url" --ca state/server.crt --key keys/ward-1.key --cache graphs ward-1/train
if command -v curl > /dev/null; then
  until curl -fsS --cacert state/server.crt -H "Authorization: Bearer $(cat readers.token)" "$url/v1/rounds/1/classifier.onnx" -o classifier.onnx; do
    sleep 0.5
  done
  fmp evaluate classifier.onnx new/test
fi
