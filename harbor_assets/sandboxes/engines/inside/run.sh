# Run one command as the user we are; POSIX sh, also busybox's. argv: id, length of the script on stdin, length of what
# follows it there for the command to read. Stdout and stderr begin with "\0ID\0", so that it is known that the command
# began. They end with "\0ID CODE KILLS\0": exit code, and how many processes the memory limit has killed so far.
# Ends with 93 if that id was taken or ended before, with 94 if its output could not be seen to its end.
exec 3>&1 4>&2 2>/dev/null # the shell's own words are not the command's
id=$1
d=/.sandbox/c/$id
script=$(head -c "$2"; echo .) # the dot keeps the newlines at its end
mkdir -m 711 "$d" && mkfifo -m 600 "$d/o" "$d/e" || exit 93
read -r line <"/proc/$$/stat"
line=${line##*) }
born() { shift 19; echo "$1" >"$d/born"; } # when we began, in the kernel's ticks
born $line
echo $$ >"$d/pid.t" && mv "$d/pid.t" "$d/pid"
printf '\0%s\0' "$id" >&3
printf '\0%s\0' "$id" >&4

# Move a stream; when told to let go, read on and forget: a server that the command left must not die of its next line.
relay() {
  exec 5<"$d/$1"
  trap 'kill $c' TERM
  cat <&5 &
  c=$!
  wait $c
  trap '' TERM
  : >"$d/$1.end"
  exec >/dev/null
  exec cat <&5
}
relay o >&3 3>&- 4>&- &
a=$!
relay e >&4 3>&- 4>&- &
b=$!
work() (
  exec 3>&- 4>&-
  export SANDBOX_COMMAND="$id"
  eval "${script%.}"
)
if [ "$3" = 0 ]; then
  work </dev/null >"$d/o" 2>"$d/e"
else # all of it is read, also what the command leaves
  head -c "$3" | { work; c=$?; cat >/dev/null; exit $c; } >"$d/o" 2>"$d/e"
fi
code=$?
i=0 # what it wrote last may still be in the pipes; a process it left holds them open
while [ $i -lt 20 ]; do
  [ -e "$d/o.end" ] && [ -e "$d/e.end" ] && break
  i=$((i + 1))
  sleep 0.02
done
[ $i -lt 20 ] || kill -TERM $a $b
k=0
for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  [ -r "$f" ] && while read -r name value; do [ "$name" = oom_kill ] && k=$value; done <"$f"
done
i=0
while [ $i -lt 20 ]; do
  [ -e "$d/o.end" ] && [ -e "$d/e.end" ] && break
  i=$((i + 1))
  sleep 0.02
done
printf '\0%s %s %s\0' "$id" "$code" "$k" >&3
printf '\0%s %s %s\0' "$id" "$code" "$k" >&4
whole=94
[ -e "$d/o.end" ] && [ -e "$d/e.end" ] && whole=0
rm -rf "$d"
exit $whole
