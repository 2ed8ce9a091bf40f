# Run one command after another over this one exec: an exec costs the engine far more than most commands do.
# On stdin, for each: "ID SIZE INPUT" and a newline, then the script and what the command reads. Ends with a command
# that did not end in order, so that nothing of it is taken for the next one's.
while read -r id size input; do
  sh /.sandbox/run "$id" "$size" "$input" || exit $?
done
