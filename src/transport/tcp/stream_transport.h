// Stream sockets between ranks as the carrier of collectives.
#pragma once

namespace lockstep {

class StreamTransport;

}  // namespace lockstep
