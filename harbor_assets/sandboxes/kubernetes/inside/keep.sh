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
for pause in 0.002 0.005 0.01 0.02 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05; do
  kill -0 $a 2>/dev/null || kill -0 $b 2>/dev/null || break
  if [ $i -gt 2 ]; then
    now=$(stat -c %s "$d/out" "$d/err")
    [ $i -gt 8 ] && [ "$now" = "$before" ] && break
    before=$now
  fi
  i=$((i + 1))
  sleep $pause
done
echo $code >"$d/rc"
echo 1<>"$d/w" # opened both ways, so that it waits for no reader
wait
