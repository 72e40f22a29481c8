#!/bin/sh
# Screenshots of a run's report.html, at desktop and phone width, light and dark, into docs/figures.
# Needs Chromium (Debian: apt-get install chromium). Fails where the page writes to the console.
# usage: docs/screenshots.sh RUN
set -eu
run=${1:?usage: docs/screenshots.sh RUN}
page=$(cd "$run" && pwd)/report.html
out=$(cd "$(dirname "$0")" && pwd)/figures
browser=${CHROMIUM:-chromium}
shot() { # file width height [scheme]
  profile=$(mktemp -d)
  "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr --user-data-dir="$profile" \
    ${4:+--force-dark-mode --blink-settings=preferredColorScheme=0} \
    --window-size="$2,$3" --screenshot="$out/$1" "file://$page" 2>"$profile/log"
  if grep CONSOLE "$profile/log"; then
    echo "$page wrote to the browser's console" >&2
    exit 1
  fi
  rm -rf "$profile"
}
shot report-desktop.png 1200 2000
shot report-phone-dark.png 400 1600 dark
