#!/bin/sh
# check.sh DIST [OTHER]: what somebody without a compiler does with a release, and whether OTHER, of a build elsewhere, has its bytes.
# The lines that run are those of README.md, with the archive's folder as the whole PATH.
set -eu
dist=$(cd "$1" && pwd)
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$dist" && sha256sum --quiet -c SHA256SUMS)
echo "digests: those of SHA256SUMS"
if [ -n "${2:-}" ]; then
  diff -rq "$dist" "$2"
  echo "two builds: the same bytes"
fi

case $(uname -m) in x86_64) arch=amd64 ;; *) arch=arm64 ;; esac
tar xzf "$dist"/fmp-*-linux-$arch.tar.gz -C "$work"
archive=$(echo "$work"/fmp-*)
sed -n '/^export PATH/,/^```/p' "$repository/README.md" | sed 's/ *#.*//' | grep '^fmp' >"$work/lines"
[ "$(wc -l <"$work/lines")" -ge 6 ] || { echo "README.md has no lines from an archive to a prediction"; exit 1; }
mkdir "$work/here"
start=$(date +%s)
(cd "$work/here" && env -i HOME="$work" PATH="$archive" /bin/sh -e "$work/lines") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
took=$(($(date +%s) - start))
echo "first prediction: $took s from the unpacked archive, without a compiler"
[ "$took" -le 60 ] || { echo "it is to take a minute at most"; exit 1; }

if [ -f "$dist.sig" ]; then
  "$archive/fmp" verify "$dist" --key "$3" --signature "$dist.sig"
fi
if command -v dpkg >/dev/null; then
  mkdir -p "$work/root/var/lib/dpkg/updates" "$work/root/var/lib/dpkg/info"
  : >"$work/root/var/lib/dpkg/status"
  dpkg --root="$work/root" --force-not-root --force-depends --force-bad-path --log=/dev/null -i "$dist"/fmp_*_$arch.deb >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
  "$work/root/usr/bin/fmp" doctor | grep -q "ok  *ONNX Runtime .*$work/root/usr/lib/fmp/" || { "$work/root/usr/bin/fmp" doctor; exit 1; }
  echo "Debian package: dpkg installs it, and fmp finds the ONNX Runtime beside it"
  dpkg --root="$work/root" --force-not-root --log=/dev/null -r fmp >/dev/null
  [ ! -e "$work/root/usr/bin/fmp" ] || { echo "dpkg -r leaves fmp"; exit 1; }
fi
if command -v skopeo >/dev/null; then # podman load reads archives by the same library
  skopeo copy --quiet --override-arch $arch oci-archive:"$(echo "$dist"/fmp-edge-*.oci.tar)" dir:"$work/image"
  layer=$(sed -n 's/.*"layers":.*"digest":"sha256:\([0-9a-f]*\)".*/\1/p' "$work/image/manifest.json")
  mkdir "$work/layer" && tar xf "$work/image/$layer" -C "$work/layer"
  "$work/layer/fmp-edge" --help | grep -q compress
  echo "container image: skopeo reads it for $arch, and its client runs"
fi
