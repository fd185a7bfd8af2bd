#!/usr/bin/bash -p
# Stands where python3 would, in a jail whose starts of Python are counted. It asks the host (dkgi/jail/broker.py), which
# runs the interpreter on the standard streams of this process in a jail of its own, and ends as that ended.
request=$$.$RANDOM$RANDOM
answer=/run/py/all
exec 9<>/run/py/tick || exit 126
if [[ ! -s $answer ]]; then
  # A subshell writes, so that this process never holds the pipe where the host looks for a stream of Python's.
  (echo "$request" >/run/py/req) || exit 126
  until [[ -s $answer ]]; do
    answer=/run/py/$request
    read -r -t 0.01 -u 9
    [[ -s $answer ]] || answer=/run/py/all
  done
fi
{
  read -r code
  while read -r line; do echo "$line" >&2; done
} <"$answer"
exit "$code"
