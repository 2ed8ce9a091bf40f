# End everything a command started, at once, also what left its session. argv: id
# Ours are: its keeper, what carries its mark in the environment, orphans born since it began that carry no other
# command's mark (root may not read the environment of another user's process), and all their descendants.
# Ends with 0 if none of them is left.
d=/.sandbox/c/$1
(set -C && : >"$d") 2>/dev/null && exit 0 # it has not begun, and now it cannot
i=0
[ -d "$d" ] || { [ -e "$d" ]; exit; }
while [ ! -s "$d/pid" ]; do # between its claim and its start
  [ $i -lt 40 ] || exit 0
  i=$((i + 1))
  sleep 0.05
done
read -r keeper <"$d/pid"

# Sets table: "pid ppid session start" lines of all that live
look() {
  table=
  for f in /proc/[0-9]*/stat; do
    { read -r line <"$f"; } 2>/dev/null || continue
    p=${line%% *}
    line=${line##*) }
    set -- $line
    case $1 in Z | X) continue ;; esac
    table="$table$p $2 $4 ${20}
"
  done
}

read -r born <"$d/born"
others=" "
for f in /.sandbox/c/*/pid; do
  read -r p <"$f"
  [ "$p" = "$keeper" ] || others="$others$p "
done

victims() {
  ours=" $keeper " strange=" "
  for f in $(grep -ls "SANDBOX_COMMAND=" /proc/[0-9]*/environ); do
    p=${f#/proc/}
    p=${p%%/*}
    if grep -qs "SANDBOX_COMMAND=$id" "$f"; then ours="$ours$p "; else strange="$strange$p "; fi
  done
  look
  grew=1
  while [ -n "$grew" ]; do
    grew=
    while read -r p parent session start; do
      [ -n "$p" ] || continue
      case $ours in *" $p "*) continue ;; esac
      case $ours in
        *" $parent "*) ours="$ours$p " grew=1; continue ;;
      esac
      [ "$parent" = 1 ] && [ "$session" != "$first" ] && [ "$start" -ge "$born" ] || continue
      case $others$strange in *" $p "*) continue ;; esac
      ours="$ours$p " grew=1
    done <<EOF
$table
EOF
  done
  alive=
  while read -r p _; do
    [ -n "$p" ] || continue
    case $ours in *" $p "*) alive="$alive $p" ;; esac
  done <<EOF
$table
EOF
}

id=$1
{ read -r line </proc/1/stat; } 2>/dev/null
set -- ${line##*) }
first=$4
i=0 before=none
while [ $i -lt 10 ]; do # stop them first: what forks faster than we look would get away
  victims
  [ "$alive" = "$before" ] && break
  before=$alive
  [ -n "$alive" ] && kill -STOP $alive 2>/dev/null
  i=$((i + 1))
done
i=0
while [ $i -lt 20 ]; do
  victims
  [ -n "$alive" ] || exit 0
  kill -KILL $alive 2>/dev/null
  i=$((i + 1))
  sleep 0.05
done
exit 1
