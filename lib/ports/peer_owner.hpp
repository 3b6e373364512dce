// Finds the user who created the peer's socket of a TCP connection, where the peer is on this machine.
#pragma once
#include <sys/types.h>

#include <optional>

namespace dslaunch::ports {

struct PeerOwner {
  enum class Location {
    kHere,       // `uid` created it
    kGone,       // closed meanwhile: no user owns it any more
    kElsewhere,  // on another machine or in another network namespace; or neither netlink nor /proc answers
  };
  Location location = Location::kElsewhere;
  uid_t uid = 0;  // as seen from our user namespace: users of another namespace appear as the kernel's overflow uid
};

// `fd`: a connected TCP socket. Asks the kernel over netlink for this one socket, and reads /proc/net where netlink
// does not answer. Does not block.
PeerOwner owner_of_peer(int fd);

// The two methods, exposed for tests; nullopt when the method gives no answer.
std::optional<PeerOwner> peer_owner_from_netlink(int fd);
std::optional<PeerOwner> peer_owner_from_proc(int fd);

}  // namespace dslaunch::ports
