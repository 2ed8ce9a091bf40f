# Prove a network mode, and end what would carry the one before on. bash, for its /dev/tcp; all else POSIX.
# argv: seconds to wait; "all", "open" or "none": which processes end; an address that must answer, or "-"; addresses
# (a.b.c.d:port) that must not. "api" and "dns" stand for the pod's own, as the cluster wrote them; stdout says which.
# Ends with 0: proven; 3: a denied address answers; 4: the allowed one does not; 5: this image cannot tell;
# 6: open connections are left; 7: processes are left.
blame=
exec 9<> <(:) || exit 5 # a pipe of our own that nobody writes into: waiting needs no program, which a task may have removed
nap() { read -r -t "$1" -u 9; }
LC_ALL=C limit=$1 what=$2 allowed=$3
shift 3

api=${KUBERNETES_SERVICE_HOST:-}:${KUBERNETES_SERVICE_PORT:-443} dns=
while read -r word value _; do
  [ "$word" = nameserver ] && [ -z "$dns" ] && [[ $value == *.* ]] && dns=$value:53
done </etc/resolv.conf
echo "api=$api"
echo "dns=$dns"
own() { case $1 in api) echo "$api" ;; dns) echo "$dns" ;; *) echo "$1" ;; esac; }
[ "$allowed" = - ] || allowed=$(own "$allowed")
denied=()
for a; do a=$(own "$a"); [[ $a == *.*:* ]] && denied+=("$a"); done

hex() { # as /proc/net/tcp writes an address
  local port=${1##*:} IFS=.
  set -- ${1%:*}
  printf '%02X%02X%02X%02X:%04X' "$4" "$3" "$2" "$1" "$port"
}

# A probe that cannot run would find everything closed.
said=$( (exec 3<>/dev/tcp/127.0.0.1/1) 2>&1)
[[ $said == *refused* ]] || exit 5
nap 0.001
[ $? -gt 128 ] || exit 5 # it did not wait


everyone() { # all pids but PID 1's session, ours, and a terminal multiplexer with what runs in it (agents outside use it)
  local line p f spared=" " grew=1 table=
  pids=
  for f in /proc/[0-9]*/stat; do
    { read -r line <"$f"; } 2>/dev/null || continue
    p=${line%% *}
    [[ $line == *"(tmux: server)"* ]] && spared="$spared$p "
    set -- ${line##*) }
    [[ $1 == [ZX] || $4 == "$first" || $4 == "$mine" ]] && continue
    table="$table$p $2
"
  done
  while [ -n "$grew" ]; do
    grew=
    while read -r p parent; do
      [[ -n $p && $spared != *" $p "* && $spared == *" $parent "* ]] && spared="$spared$p " grew=1
    done <<<"$table"
  done
  while read -r p _; do [[ -n $p && $spared != *" $p "* ]] && pids="$pids $p"; done <<<"$table"
}
session() { local line; read -r line <"/proc/$1/stat"; set -- ${line##*) }; echo "$4"; }
first=$(session 1) mine=$(session $$)

end_all() {
  local i
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    everyone
    [ -n "$pids" ] || return 0
    [ "$i" -le 3 ] && kill -STOP $pids 2>/dev/null
    kill -KILL $pids 2>/dev/null
    nap 0.02
  done
  return 7
}

sockets() { # "inode uid" of each connection to somewhere else
  local loc rem st uid inode f
  for f in /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6; do
    [ -r "$f" ] && while read -r _ loc rem st _ _ _ uid _ inode _; do
      case $f$st in */tcp*0A | */tcp*06 | */tcp*07 | */udp*07 | *st) continue ;; esac
      [[ $inode == 0 || ${loc%:*} == "${rem%:*}" ]] && continue
      case ${rem%:*} in ??????7F | 0000000000000000FFFF0000??????7F | 00000000000000000000000001000000) continue ;; esac
      echo "$inode $uid"
    done <"$f"
  done
}

end_open() { # what holds a connection ends: nothing else can close it from here
  local i found inode uid line p owners
  for i in 1 2 3 4 5 6 7 8 9 10; do
    found=$(sockets)
    [ -n "$found" ] || return 0
    owners=
    p=
    while read -r line; do
      case $line in
        /proc/*/fd:) p=${line#/proc/} p=${p%%/*} ;;
        *socket:*) inode=${line##*\[} inode=${inode%\]}
                   [[ $'\n'$found == *$'\n'"$inode "* && $p != 1 && $p != $$ ]] && owners="$owners $p" ;;
      esac
    done < <(ls -l /proc/[0-9]*/fd 2>/dev/null)
    if [ -z "$owners" ]; then # another user's, whose files root may not look into without more rights: by user
      while read -r inode uid; do
        for p in /proc/[0-9]*; do [ "$(stat -c %u "$p" 2>/dev/null)" = "$uid" ] && owners="$owners ${p#/proc/}"; done
      done <<<"$found"
      owners=" $owners "
      owners=${owners// 1 / }
      owners=${owners// $$ / }
    fi
    [ -n "${owners// /}" ] && kill -KILL $owners 2>/dev/null
    nap 0.05
  done
  [ -z "$(sockets)" ] || return 6
}

# A SYN that was out before the policy was in force is lost, and the kernel waits a second to repeat it: so ask anew.
answers() {
  local i p pause alive pids=() verdict=1
  for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    (exec 3<>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null & pids+=($!)
    for pause in 0.005 0.02 0.05; do
      nap $pause
      alive=()
      for p in "${pids[@]}"; do
        if kill -0 "$p" 2>/dev/null; then alive+=("$p"); elif wait "$p" 2>/dev/null; then verdict=0; fi
      done
      pids=("${alive[@]}")
      [ $verdict = 1 ] || break 2
    done
  done
  for p in "${pids[@]}"; do kill -KILL "$p" 2>/dev/null; wait "$p" 2>/dev/null; done
  return $verdict
}

# Closed is: refused, or a SYN that is out and has no answer for 0.2 s. A slow probe is no proof, the kernel's table is.
closed() {
  local a i one two pids=() verdict=0
  for a in "${denied[@]}"; do (exec 3<>"/dev/tcp/${a%:*}/${a##*:}") 2>/dev/null & pids+=($!); done
  nap 0.05
  for i in "${!pids[@]}"; do
    if ! kill -0 "${pids[i]}" 2>/dev/null && wait "${pids[i]}" 2>/dev/null; then verdict=3 blame=${denied[i]}; fi
  done
  if [ $verdict = 0 ]; then
    one=$(</proc/net/tcp)
    nap 0.2
    two=$(</proc/net/tcp)
    for i in "${!pids[@]}"; do
      if kill -0 "${pids[i]}" 2>/dev/null; then
        a=$(hex "${denied[i]}")
        [[ $one == *" $a 02 "* && $two == *" $a 02 "* ]] || verdict=3 blame=${denied[i]}
      else wait "${pids[i]}" 2>/dev/null && verdict=3 blame=${denied[i]}; fi
    done
  fi
  for i in "${pids[@]}"; do kill -KILL "$i" 2>/dev/null; wait "$i" 2>/dev/null; done
  return $verdict
}

[ "$what" != all ] || end_all || exit 7
SECONDS=0
while :; do
  r=0
  [ ${#denied[@]} -eq 0 ] || closed || r=3
  if [ $r = 0 ] && [ "$allowed" != - ]; then answers "$allowed" || r=4 blame=$allowed; fi
  [ $r = 0 ] && break
  if [ $SECONDS -ge "$limit" ]; then
    echo "at=$blame"
    exit $r
  fi
  nap 0.05
done
[ "$what" = none ] || end_open
