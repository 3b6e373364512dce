// The thread that serves one link: small, detached, with signals blocked, so that many of them are cheap and none takes
// a signal from the loop that waits for it.
#pragma once
#include <functional>

namespace dslaunch::spawn {

// Runs `body`, which must not throw and must own all data that it uses. Throws SystemError.
void start_link_thread(std::function<void()> body);

}  // namespace dslaunch::spawn
