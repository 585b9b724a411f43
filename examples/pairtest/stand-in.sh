#!/bin/sh
# Stands in for a collective on two or three nodes, where there is no cluster to try it on.
#
#     FAULTY="node12 node31" HANGS="node47" CUT="node5+node6" sh stand-in.sh node1 node2
#
# fails with a faulty node, hangs with one that hangs, and fails if both ends of a cut link take part.
set -- $(echo "$@" | tr , ' ')
for node in "$@"; do
  case " $HANGS " in *" $node "*) exec sleep 3600 ;; esac
  case " $FAULTY " in *" $node "*) echo "$node: all_gather: remote process exited or there was a network error"; exit 1 ;; esac
done
for link in $CUT; do
  case " $* " in *" ${link%+*} "*) case " $* " in *" ${link#*+} "*) echo "all_gather: connection timed out"; exit 1 ;; esac ;; esac
done
echo "all_gather of $# nodes: ok"
