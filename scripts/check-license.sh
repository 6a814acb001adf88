#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each source file says on its first line under which licence it is; after a shebang, on its second. Prints the files
# that do not and exits 1 if there is one.
#
#   scripts/check-license.sh              checks the files that git knows or would take
#   scripts/check-license.sh --fix        adds the line where it is not
#   scripts/check-license.sh --self-test  checks that the line is missed, added once, and added in its place
#
# Source files are those of the languages below and all that begin with a shebang. Test data is none.
set -euo pipefail

license='SPDX-License-Identifier: Apache-2.0'
patterns=('*.cpp' '*.hpp' '*.cu' '*.cuh' '*.c' '*.h' '*.cpp.in' '*.py' '*.sh' '*.sbatch' '*.cmake' '*.toml' '*.yaml'
  '*CMakeLists.txt' '*Dockerfile' '*.def')

# The source files of the repository that holds the current folder.
source_files() {
  git ls-files --cached --others --exclude-standard -- "${patterns[@]}"
  # Scripts without an extension.
  git ls-files --cached --others --exclude-standard | awk -F/ '$NF !~ /\./' | while IFS= read -r file; do
    if [ -f "$file" ] && IFS= read -r -n 2 start <"$file" && [ "$start" = '#!' ]; then echo "$file"; fi
  done
}

# Those of them without the line.
unlicensed_files() {
  source_files | sort -u | while IFS= read -r file; do
    if [ -f "$file" ]; then echo "$file"; fi
  done | LC_ALL=C xargs -r -d '\n' awk -v license="$license" '
    BEGIN {
      for (i = 1; i < ARGC; ++i) {
        line = ""
        status = (getline line < ARGV[i])
        if (status > 0 && line ~ /^#!/) getline line < ARGV[i]
        close(ARGV[i])
        if (line != "// " license && line != "# " license) print ARGV[i]
      }
    }'
}

# add FILE: the line, in the language's comment.
add() {
  local comment='#' line=1
  case $1 in *.cpp | *.hpp | *.cu | *.cuh | *.c | *.h | *.cpp.in) comment='//' ;; esac
  if [ "$(head -c 2 "$1" | tr -d '\0')" = '#!' ]; then line=2; fi
  awk -v line="$line" -v text="$comment $license" 'FNR == line { print text } { print } END { if (FNR < line) print text }' \
    "$1" >"$1.license"
  chmod --reference="$1" "$1.license"
  mv "$1.license" "$1"
}

fix() {
  unlicensed_files | while IFS= read -r file; do add "$file"; done
}

check() {
  local found
  found=$(unlicensed_files)
  if [ -n "$found" ]; then
    while IFS= read -r file; do echo "$file: its first line is not '$license'"; done <<<"$found"
    echo "check-license: $(wc -l <<<"$found") files have none; run scripts/check-license.sh --fix" >&2
    return 1
  fi
}

self_test() {
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  cd "$tree"
  git init -q .
  mkdir sub
  printf '#pragma once\n' >sub/a.hpp
  printf '#!/usr/bin/env bash\n# What it does.\n' >script
  printf '"""Docstring."""\n' >b.py
  printf '#!/usr/bin/env python3\n' >only_shebang.py
  : >CMakeLists.txt
  printf '// SPDX-License-Identifier: MIT\n' >other.cpp
  printf '// %s\n#pragma once\n' "$license" >has.hpp
  printf 'no source file\n' >text.md
  printf '\177ELF\0\0' >binary
  chmod 750 script
  local wrong=0
  expect() { # WHAT FOUND EXPECTED
    if [ "$2" != "$3" ]; then
      printf 'check-license: %s: expected\n%s\ngot\n%s\n' "$1" "$3" "$2"
      wrong=1
    fi
  }
  expect "files without a line" "$(unlicensed_files)" $'CMakeLists.txt\nb.py\nonly_shebang.py\nother.cpp\nscript\nsub/a.hpp'
  if check >/dev/null 2>&1; then expect "the check" passed failed; fi
  fix
  expect "after --fix" "$(unlicensed_files)" ""
  if ! check >/dev/null; then expect "the check after --fix" failed passed; fi
  expect header "$(cat sub/a.hpp)" "// $license"$'\n#pragma once'
  expect script "$(cat script)" $'#!/usr/bin/env bash\n'"# $license"$'\n# What it does.'
  expect "the script's mode" "$(stat -c %a script)" 750
  expect python "$(cat b.py)" "# $license"$'\n"""Docstring."""'
  expect "only a shebang" "$(cat only_shebang.py)" $'#!/usr/bin/env python3\n'"# $license"
  expect "empty file" "$(cat CMakeLists.txt)" "# $license"
  fix
  expect "a second --fix" "$(cat has.hpp)" "// $license"$'\n#pragma once'
  if [ "$wrong" -ne 0 ]; then return 1; fi
  echo "check-license: the line is missed, added once, and added in its place"
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit
fi
cd "$(dirname "$0")/.."
case ${1:-} in
  '') check ;;
  --fix) fix ;;
  *)
    echo "usage: scripts/check-license.sh [--fix | --self-test]" >&2
    exit 2
    ;;
esac
