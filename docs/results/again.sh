#!/bin/sh
# Whether the program gives the figures that are kept: docs/results/again.sh RUN... makes the first repeat of each kept run again, with its own settings, in the
# folder runs/again, and says which cells changed (fmp results reproduced). SEEDS is the number of repeats, METHODS those to run instead of all, and SETTINGS
# further flags: --extractor FILE where a run's network is no file of this repository.
set -u
cd "$(dirname "$0")/../.."
fmp=${FMP:-bin/fmp} changed=0
: "${1:?name kept runs, such as docs/results/one/digits}"
for run; do
	made=runs/again/${run#docs/results/}
	# shellcheck disable=SC2086
	"$fmp" run --config "$run/config.yaml" --seeds "${SEEDS:-1}" ${METHODS:+--methods "$METHODS"} ${SETTINGS:-} --out "$made" >/dev/null || exit
	"$fmp" results reproduced "$run" "$made" || changed=1
done
exit $changed
