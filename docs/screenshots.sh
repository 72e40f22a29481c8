#!/bin/sh
# Screenshots of a run, into docs/figures: its report.html at desktop width (table and diagrams; images and points),
# at phone width in the dark, and what a terminal shows of it.
# Needs Chromium (Debian: apt-get install chromium), script (util-linux) and fmp on the path. Fails where the page
# writes to the browser's console.
# usage: docs/screenshots.sh RUN
set -eu
run=${1:?usage: docs/screenshots.sh RUN}
page=$(cd "$run" && pwd)/report.html
out=$(cd "$(dirname "$0")" && pwd)/figures
browser=${CHROMIUM:-chromium}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shot() { # file page width height [scheme]
  "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr --user-data-dir="$work/profile" \
    ${5:+--force-dark-mode --blink-settings=preferredColorScheme=0} \
    --window-size="$3,$4" --screenshot="$out/$1" "file://$2" 2>"$work/log"
  if grep CONSOLE "$work/log"; then
    echo "$2 wrote to the browser's console" >&2
    exit 1
  fi
}
# A terminal as a page: what the program writes to one, bold kept.
terminal() { # command...
  printf '<b>$ %s</b>\n' "$*"
  script -qec "$*" /dev/null | tr -d '\r' | sed -e 's/&/\&amp;/g; s/</\&lt;/g' -e 's/\x1b\[1m/<b>/g; s/\x1b\[[0-9;]*m/<\/b>/g'
}
{
  printf '<!DOCTYPE html><meta charset="utf-8"><style>body{margin:0;background:#17171a;color:#d8d8d6}b{color:#fff}'
  printf 'pre{margin:0;padding:16px 20px;font:14px/1.4 "DejaVu Sans Mono","Liberation Mono",monospace}</style><pre>'
  terminal fmp results show "$run"
  terminal fmp results compare "$run" --method FMP
  printf '</pre>'
} >"$work/terminal.html"

shot report-desktop.png "$page" 1200 1815
# The lower half of the page alone: the headings' sections from the upload on.
sed 's/<style>/<style>details, body > figure { display: none } h2 + figure { display: block }/' "$page" >"$work/lower.html"
shot report-images.png "$work/lower.html" 1200 1250
shot report-phone-dark.png "$page" 400 1600 dark
shot terminal.png "$work/terminal.html" 960 1330
