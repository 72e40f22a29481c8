#!/bin/sh
# The attacks on uploads without noise: docs/results/audit.sh AUDIT makes one of them again, in docs/results/audit/AUDIT.json: moments-20, moments-200 and
# moments-1000 behind EfficientNet-Lite0, whose folder FOLDER is, and class-means-10 and class-means-100, with ten calibration points, behind the small networks.
# extractor is the audit of extractors by the bits of an image that leave with plain uploads.
# time is the attack on a private round's client by the moment of its reply: half an hour.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
fmp=${FMP:-$root/bin/fmp}
name=${1:?name an audit}
points=${name##*-}
case $name in
moments-*) cd "${FOLDER:?the folder of efficientnet_lite0_features_128.onnx}" && set -- pretrained/cifar10-20 --rounds 1 ;;
class-means-*) set -- closed/cifar10 --rounds 10 --calibrate 10 ;;
extractor) set -- closed/cifar10 --server extractor --engine.name pure; points=0 ;;
time) set -- privacy/local-1 --rounds 1 --time 200 --reply-after 1500ms --engine.name pure; points=0 ;;
*) echo "no audit $name" >&2; exit 2 ;;
esac
run=$1
shift
mkdir -p "$root/docs/results/audit"
"$fmp" audit "$root/docs/results/$run" "$@" --points "$points" --engine.threads 1 --json > "$root/docs/results/audit/$name.partial"
mv "$root/docs/results/audit/$name.partial" "$root/docs/results/audit/$name.json"
