# Runs in a jail as: bash read.sh PATH OFFSET LIMIT BYTES
# Prints one line "total N" with the number of lines of PATH, then at most LIMIT lines and BYTES bytes from line OFFSET on.
# Uses only programs that every policy with files has.
path=$1 offset=$2 limit=$3 bytes=$4
[[ -e $path ]] || { echo "failed no such file"; exit 0; }
[[ -f $path ]] || { echo "failed not a regular file"; exit 0; }
[[ -r $path ]] || { echo "failed permission denied"; exit 0; }
total=$(wc -l <"$path")
# wc counts newlines; a last line without one is a line too.
[[ -s $path && -n $(tail -c 1 -- "$path") ]] && total=$((total + 1))
echo "total $total"
tail -n "+$offset" -- "$path" | head -n "$limit" | head -c "$bytes"
