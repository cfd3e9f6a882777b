// Sockets that forked children of this process must not keep open.
//
// A child that is forked without exec (a worker that loads data, for example) has a copy of every descriptor, and
// close-on-exec does not help. If this process dies, the kernel ends its connections only when the last copy is closed,
// so peers would not see its death while a child lives.
#pragma once

namespace lockstep {

// From now on, forked children find /dev/null in place of this socket. Nothing needs to be undone when it is closed: a
// later descriptor of the same number is not affected. Thread-safe. Descriptors above 65535 are not covered.
void close_in_forked_children(int socket);

}  // namespace lockstep
