// Which user made the socket at the other end of a TCP connection, where that end is on this machine.
#pragma once
#include <sys/types.h>

#include <optional>

namespace dslaunch::ports {

struct PeerOwner {
  enum class Place {
    kHere,       // `uid` made it
    kGone,       // closed meanwhile: nobody owns it any more
    kElsewhere,  // on another machine or in another network namespace; or neither netlink nor /proc tells
  };
  Place place = Place::kElsewhere;
  uid_t uid = 0;  // as seen from our user namespace: another namespace's users are the kernel's overflow uid
};

// `fd`: a connected TCP socket. Asks the kernel for that one socket, and reads /proc/net where it does not answer. Does
// not block.
PeerOwner owner_of_peer(int fd);

// The two ways, for tests; nothing when this way gives no answer.
std::optional<PeerOwner> peer_owner_from_netlink(int fd);
std::optional<PeerOwner> peer_owner_from_proc(int fd);

}  // namespace dslaunch::ports
