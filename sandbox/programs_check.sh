# Runs in an attempt's jail after self_check.sh where programs are a closed set; dkgi/jail/preflight.py judges the lines.
# Arguments: the programs that must start, "--", then the ones that must not. What a start printed counts, not how it ended.
shopt -s nullglob

while [[ $1 != -- ]]; do
  [[ -n $("$1" --version 2>/dev/null) ]] && echo "starts $1"
  shift
done
shift

# Every file that may be executed, the graph's aside, which lies on a mount without programs.
find / \( -path /proc -o -path /graph \) -prune -o -type f -perm /111 -printf 'program %p\n' 2>/dev/null

declare -A word=(
  [python]='-c print("started")' [perl]='-e print"started"' [ruby]='-e puts"started"' [lua]='-e print"started"'
  [node]='-e console.log("started")' [awk]='BEGIN{print"started"}' [sh]='-c echo${IFS}started' [env]='echo started'
)
loaders=(/lib*/ld-*.so* /lib/*/ld-*.so*)
# Bytes of a program in a place that can be written start neither by the loader nor, without rights to set modes, by name.
for folder in /scratch /tmp /dev/shm; do
  cat /bin/bash >"$folder/.program"
  for loader in "${loaders[@]}"; do "$loader" "$folder/.program" -c 'echo started' 2>/dev/null; done |
    while read -r line; do echo "started $folder"; done
  find "$folder/.program" -delete
done
for name; do
  for kind in "${!word[@]}"; do
    [[ ${name##*/} == *$kind* ]] || continue
    read -ra arguments <<<"${word[$kind]}"
    {
      "${name##*/}" "${arguments[@]}"
      "$name" "${arguments[@]}"
      find . -maxdepth 0 -exec "$name" "${arguments[@]}" \;
      xargs "$name" "${arguments[@]}" <<<""
      for loader in "${loaders[@]}"; do "$loader" "$name" "${arguments[@]}"; done
    } 2>/dev/null | while read -r line; do echo "started $name"; done
  done
done
echo done
