#!/usr/bin/env bash
# Installs packages into a virtual environment:  tools/install.sh .venv -e '.[test]'
# The file of versions is constraints.txt, or what CONSTRAINTS names.
# uv takes a quarter of pip's time; where it does not reach the packages, pip installs them.
set -euo pipefail
python=$1/bin/python
uv=$1/bin/uv
shift
constraints=${CONSTRAINTS:-constraints.txt}
pip=("$python" -m pip --disable-pip-version-check --no-input)

# What pip is told on this machine (an index, a folder of wheels): uv does not read pip's settings.
setting() {
  "${pip[@]}" config list | sed -n "s/.*\.$1='\(.*\)'/\1/p" | tail -1 | tr ' ' ','
}

if "${pip[@]}" -qq install uv; then
  UV_FIND_LINKS=$(setting find-links) UV_DEFAULT_INDEX=$(setting index-url)
  for name in UV_FIND_LINKS UV_DEFAULT_INDEX; do
    if [ -n "${!name}" ]; then export "${name?}"; fi
  done
  "$uv" pip install --quiet --python "$python" -c "$constraints" "$@" && exit
fi
"${pip[@]}" -qq install 'pip>=25.1'
"${pip[@]}" -qq install --no-compile -c "$constraints" "$@"
