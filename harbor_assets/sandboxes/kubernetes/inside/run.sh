# Start a command once and follow its output; bash at best, else POSIX sh, also busybox's.
# argv: id, length of the script on stdin ("-": only follow), bytes of stdout and of stderr the caller holds,
#       most bytes of each it takes, user ("" is root), ids whose files may go
# The script on stdin is the command. The output goes to our stdout and stderr; the last thing on stderr is
# "\0\0CODE OUT ERR KILLS HITS": exit code, bytes of each stream in all, processes killed so far for want of
# memory, and 1 if the sandbox's own limit was met, 0 if it was the node that was short.
# Ends with 91: the script did not arrive whole; 92: no such user; 93: that id was never started; 95: no way to be
# another user in this image.
exec 3>&2 2>/dev/null # the shell's own words ("Terminated", of a sleep that was killed) are not the command's
id=$1 size=$2 o=$3 e=$4 most=$5 who=$6
shift 6
base=/.sandbox/c
d=$base/$id

# Sets k (processes killed for want of memory) and h (1 if that was at our own limit). The pod's limit is met a little
# before the container's, and its counters cannot be seen from here: so what was used at most has to say it.
kills() {
  k=0 h=0 c=/sys/fs/cgroup peak= limit=
  for f in $c/memory.events $c/memory/memory.oom_control; do
    [ -r "$f" ] && while read -r name value; do [ "$name" = oom_kill ] && k=$value; done <"$f"
  done
  [ "$k" -gt 0 ] || return 0
  for f in $c/memory.peak $c/memory/memory.max_usage_in_bytes; do [ -r "$f" ] && read -r peak <"$f"; done
  for f in $c/memory.max $c/memory/memory.limit_in_bytes; do [ -r "$f" ] && read -r limit <"$f"; done
  case $limit in max | ?????????????????*) return 0 ;; esac # none
  [ -n "$peak" ] && [ $((peak + peak / 16)) -lt "$limit" ] || h=1
}

# Sets run (the words that become the user), uid, gid, home. Names come from the image's own files.
become() {
  run= uid= gid= home= name=${1%%:*} group=
  case $1 in *:*) group=${1#*:} ;; esac
  while IFS=: read -r n _ u g _ h _; do
    if [ "$n" = "$name" ] || [ "$u" = "$name" ]; then uid=$u gid=$g home=$h name=$n; break; fi
  done </etc/passwd
  if [ -z "$uid" ]; then
    case $name in *[!0-9]*) return 92 ;; esac
    uid=$name gid=0 home=/ # as container engines do for a number without an entry
    known=
  else known=1; fi
  if [ -n "$group" ]; then
    case $group in
      *[!0-9]*) g=; while IFS=: read -r n _ u _; do [ "$n" = "$group" ] && g=$u; done </etc/group
                [ -n "$g" ] || return 92; gid=$g ;;
      *) gid=$group ;;
    esac
  fi
  [ "$uid" = 0 ] && [ "$gid" = 0 ] && return 0
  if command -v setpriv >/dev/null 2>&1; then
    run="setpriv --reuid $uid --regid $gid --clear-groups"
    [ -n "$known" ] && [ -z "$group" ] && run="setpriv --reuid $uid --regid $gid --init-groups"
  elif [ -n "$known" ] && [ -z "$group" ] && command -v su >/dev/null 2>&1; then run="su $name -s $shell"
  elif chroot --userspec=0:0 / true 2>/dev/null; then run="chroot --userspec=$uid:$gid /"
  else return 95; fi
  return 0
}

if [ "$size" != - ]; then
  shell=${BASH:-$(command -v bash || command -v sh)}
  if [ -n "$who" ]; then become "$who" || exit $?; else run= uid=0 gid=0 home=; fi
  t=$base/.$id.$$ mask=$(umask)
  umask 077
  mkdir -m 711 "$t" && cat >"$t/cmd" || exit 91
  if [ "$(wc -c <"$t/cmd")" -ne "$size" ]; then rm -rf "$t"; exit 91; fi # a cut stdin looks like its end
  mkfifo "$t/o" "$t/e" "$t/w" && : >"$t/out" && : >"$t/err" || exit 91
  if [ "$uid" != 0 ] || [ "$gid" != 0 ]; then chown "$uid:$gid" "$t/cmd" "$t/o" "$t/e"; fi
  read -r line <"/proc/$$/stat"
  line=${line##*) }
  born() { shift 19; echo "$1" >"$t/born"; } # when we began, in the kernel's ticks
  born $line
  umask "$mask"
  # The claim: a folder is renamed to what is not there, and never over one with files in it, nor over the file that
  # `end` puts there. So one caller gets through, whoever repeats the launch does not.
  if [ ! -e "$d" ] && mv "$t" "$d" && [ ! -e "$d/${t##*/}" ]; then
    case $run in su\ *) ;; *) run="$run $shell" ;; esac
    unset KUBERNETES_PORT KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBERNETES_SERVICE_PORT_HTTPS \
      KUBERNETES_PORT_443_TCP KUBERNETES_PORT_443_TCP_ADDR KUBERNETES_PORT_443_TCP_PORT KUBERNETES_PORT_443_TCP_PROTO
    # Pipes and not files: `> /dev/stderr` in a task's script would empty a file.
    SANDBOX_COMMAND=$id SANDBOX_HOME=$home setsid sh /.sandbox/keep "$d" $run </dev/null >/dev/null 2>&1 3>&- &
    echo $! >"$d/pid"
  else rm -rf "$t" "$d/${t##*/}"; fi
  for old; do rm -rf "${base:?}/$old"; done </dev/null >/dev/null 2>&1 3>&- &
fi
[ -d "$d" ] || exit 93
exec 4<>"$d/w" # the keeper writes a line into it when the command has ended

# Waits at most so many seconds, or until the command has ended. bash needs no program for it, and so no fork.
if [ -n "$BASH_VERSION" ]; then nap() { read -r -t "$1" _ <&4; }; else nap() { sleep "$1"; }; fi

part() { if [ "$2" = 0 ]; then head -c "$3" "$1"; else tail -c "+$(($2 + 1))" "$1" | head -c "$(($3 - $2))"; fi; }

s=0.02 i=0 w=0 k=0
while :; do
  f=
  [ -s "$d/rc" ] && f=1
  if [ -z "$f" ]; then
    w=$((w + 1)) p=
    [ -s "$d/pid" ] && read -r p <"$d/pid"
    if { [ -n "$p" ] && ! kill -0 "$p" 2>/dev/null; } || { [ -z "$p" ] && [ $w -gt 50 ]; }; then
      nap 0.1 # its keeper is gone (an agent's `kill -9 -1`, the memory limit), unless it has just ended by itself
      [ -s "$d/rc" ] || { echo 137 >"$d/rc.k" && mv "$d/rc.k" "$d/rc"; }
      f=1
    fi
  fi
  set -- 0 0
  if [ -s "$d/out" ] || [ -s "$d/err" ]; then set -- $(stat -c %s "$d/out" "$d/err") 0 0; fi
  n=$1 m=$2 q=1
  [ "$n" -gt "$most" ] && n=$most
  [ "$m" -gt "$most" ] && m=$most
  if [ "$n" -gt "$o" ]; then part "$d/out" "$o" "$n"; o=$n q=; fi
  if [ "$m" -gt "$e" ]; then part "$d/err" "$e" "$m" >&3; e=$m q=; fi
  if [ -n "$f" ] && { [ -n "$q" ] || [ "$n" -eq "$1" ] && [ "$m" -eq "$2" ]; }; then
    kills
    read -r code <"$d/rc"
    printf '\0\0%s %s %s %s %s' "$code" "$1" "$2" "$k" "$h" >&3
    exit 0
  fi
  if [ -n "$q" ]; then
    i=$((i + 1))
    [ $i -gt 10 ] && s=0.2
    [ $i -gt 40 ] && s=1
  else i=0 s=0.05; fi
  nap $s
done
