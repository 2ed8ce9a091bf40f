# A stream that was opened before it was needed: waits for a command on stdin, becomes it, and leaves it the rest.
# stdin: a line with the number of lines that follow; those, which are the command's words as a shell reads them
IFS= read -r lines || exit 125
words=
while [ "$lines" -gt 0 ]; do
  IFS= read -r line || exit 125 # cut: half a command is none
  words="$words$line
"
  lines=$((lines - 1))
done
eval "exec $words"
