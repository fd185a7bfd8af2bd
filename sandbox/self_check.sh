# Runs in an attempt's jail before its agent starts, mostly on commands built into bash; dkgi/jail/preflight.py judges the lines.
# Arguments: a word to be known by, then host paths that must not be seen. Of programs it uses find alone, since an agent may have few.
shopt -s nullglob dotglob

echo "uid $UID $EUID"
if [[ -e /proc/self ]]; then
  while read -r key value _; do
    case $key in CapEff: | CapBnd: | NoNewPrivs: | Seccomp:) echo "status $key $value" ;; esac
  done </proc/self/status
  find /proc/self/ns/{cgroup,ipc,mnt,net,pid,uts} -printf 'namespace %l\n'
  while read -r line; do echo "mount $line"; done </proc/self/mountinfo
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
  { echo x >"$folder/.written"; } 2>/dev/null && find "$folder/.written" -delete && echo "writable $folder"
done

for path in "${@:2}"; do
  entries=("$path"/*)
  [[ -f $path || ${#entries[@]} -gt 0 ]] && echo "visible $path"
done
echo done
