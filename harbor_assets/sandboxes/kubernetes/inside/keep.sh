# Keep one command: its output into files, its exit code last. argv: folder, words that run a script
d=$1
shift
home=$SANDBOX_HOME
unset SANDBOX_HOME
[ -n "$home" ] && HOME=$home && export HOME
cat <"$d/o" >"$d/out" & a=$!
cat <"$d/e" >"$d/err" & b=$!
"$@" "$d/cmd" </dev/null >"$d/o" 2>"$d/e" &
wait $!
code=$?
# What it wrote last may still be in the pipes. A process it left holds them open: then wait for silence, not for the end.
i=0 before=
while [ $i -lt 20 ]; do
  kill -0 $a 2>/dev/null || kill -0 $b 2>/dev/null || break
  now=$(stat -c %s "$d/out" "$d/err")
  [ $i -gt 4 ] && [ "$now" = "$before" ] && break
  before=$now i=$((i + 1))
  sleep 0.05
done
echo $code >"$d/rc.t"
mv "$d/rc.t" "$d/rc"
wait
