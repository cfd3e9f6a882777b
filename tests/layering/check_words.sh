#!/bin/sh
# check_words.sh ROOT: rejects, in the public headers and the documents of the repository at ROOT, the words that
# CONTRIBUTING.md replaces and second names for what the glossary of ARCHITECTURE.md defines.
# One line for each violation, "file:line: what is wrong"; exit code 1 if there is any.
set -eu
cd "$1"

# Words that are not to be used | what to write instead. A word is an extended regular expression in lower case, matched
# as a whole word and regardless of case, also across the end of a line.
words='
(some|every|any)body|the rank, process or peer that is meant
nobody|no rank, no process
whoever|the rank that ...
(is|are|was|be|been) let in|join
(go|goes|went|gone|going) on|continue
mend(s|ed|ing)?|fix
(at|to) hand|available
for want of|because there is no
(for|to) people|human-readable
on (its|their) way|in flight
at the door|waiting to join
looks? (at|for) doors|poll peers
doors?|member store
porter|server, acceptor
halls?|job state
keepers?|coordinator
(says?|said) goodbye|notify the peers
(com(e|es|ing)|came) to life|is allocated
(com(e|es|ing)|came) to (this|the|an) operation|reach the operation
(group|mesh|meeting|session) stands|is established
knows (only )?(that|what|whether|who|which)|store, record, detect
'

# Second names | the term of the glossary. "group" is the general word for both kinds of group; "part" is not a term.
names='
tensor[ _-]?groups?|process group (ProcessGroup)
make_tensor_group|make_process_group
engine groups?|communicator (Communicator)
groupoptions|CommunicatorOptions or ProcessGroupOptions
(sub-groups?|sub groups?)|subgroup
master (rank|process|node)|rank 0, coordinator
(ranks? of the world|world ranks?)|global rank
slow ranks?|straggler
laggards?|straggler
heartbeat (limit|timeout|option)s?|peer timeout
crowded|oversubscribed
(op|operation|work) handles?|Work
(a|the|one|no|its|their) wills?|last will
meeting places?|store, rendezvous
rendez-vous|rendezvous
registered (area|buffer|block)s?|registered memory
bounce buffers?|staging memory
(a|each|every|its) (rank.s )?share of (a|the) (data|dataset|state)|shard
restore points?|snapshot
check-points?|snapshot
(joiner|late ?comer)s?|newcomer
meeting ?boards?|node view (NodeView)
hallkeeper|Coordinator
hallstate|JobState
lonelyword|PaddedAtomic
in_looks|for_each_with_stop_check
groupfoundation|GroupRequest
passedover|SkippedSnapshot
sessionfate|SessionOutcome
next_life|next_generation
'

files=$(find include/lockstep -name '*.h' 2>/dev/null | sort)
for file in docs/*.md docs/tutorials/*.md README.md ARCHITECTURE.md; do
  [ ! -f "$file" ] || files="$files $file"
done
[ -n "$files" ] || { echo "$1: no public headers and no documents"; exit 1; }

violations=$(printf '%s\n' $files | xargs awk -v words="$words" -v names="$names" '
  function add(table, rule,    lines, n, i, bar) {
    n = split(table, lines, "\n")
    for (i = 1; i <= n; i++) {
      if (lines[i] == "") continue
      bar = match(lines[i], /\|[^|]*$/)  # alternatives in the expression have a bar, too
      count++
      pattern[count] = "(^|[^a-z0-9_])(" substr(lines[i], 1, bar - 1) ")([^a-z0-9_]|$)"
      instead[count] = rule substr(lines[i], bar + 1)
    }
  }
  function found(text, i,    word) {
    if (!match(text, pattern[i])) return ""
    word = substr(text, RSTART, RLENGTH)
    gsub(/^[^a-z0-9_]+|[^a-z0-9_]+$/, "", word)
    return word
  }
  BEGIN {
    add(words, "write: ")
    add(names, "the term of the glossary is: ")
  }
  FNR == 1 { before = "" }
  {
    text = tolower($0)
    sub(/^[ \t]*(\/\/|[*>|-])?[ \t]*/, "", text)
    for (i = 1; i <= count; i++) {
      word = found(text, i)
      if (word == "" && found(before, i) == "") word = found(before " " text, i)
      if (word != "") printf "%s:%d: \"%s\"; %s\n", FILENAME, FNR, word, instead[i]
    }
    before = text
  }')
[ -n "$violations" ] || exit 0
echo "$violations"
exit 1
