# Runs in an attempt's jail before its agent starts, mostly on commands built into bash; dkgi/jail/preflight.py judges the lines.
# Arguments: a word to be known by, then host paths that must not be seen. Of programs it uses find alone, since an agent may have few.
shopt -s nullglob dotglob

echo "uid $UID $EUID"
paths=()
if [[ -e /proc/self ]]; then
  mapfile -t lines </proc/self/status
  for line in "${lines[@]}"; do
    case $line in CapEff:* | CapBnd:* | NoNewPrivs:* | Seccomp:*) echo "status ${line/$'\t'/ }" ;; esac
  done
  mapfile -t lines </proc/self/mountinfo
  for line in "${lines[@]}"; do echo "mount $line"; done
  paths=(/proc/self/ns/{cgroup,ipc,mnt,net,pid,uts})
else
  kill -STOP $$ # until the host has read all this from outside
fi

refusal=$({ exec 3<>/dev/tcp/127.0.0.1/9; } 2>&1)
echo "tcp ${refusal##*: }"

files=0
for file in * */*; do
  if [[ ! -r $file ]]; then echo "unreadable $file"; elif [[ -f $file ]]; then files=$((files + 1)); fi
done
((files > 0)) && echo graph_readable
{ : >.written; } 2>/dev/null || echo graph_read_only
{ : >/scratch/full_outputs/.written; } 2>/dev/null || echo outputs_read_only
for folder in /scratch /tmp; do
  { echo x >"$folder/.written"; } 2>/dev/null && paths+=("$folder/.written")
done
# One find for all that bash cannot do, since each attempt waits for this check.
((${#paths[@]} > 0)) && find "${paths[@]}" -name .written -delete -printf 'writable %h\n' -o -printf 'namespace %l\n'

for path in "${@:2}"; do
  entries=("$path"/*)
  [[ -f $path || ${#entries[@]} -gt 0 ]] && echo "visible $path"
done
echo done
