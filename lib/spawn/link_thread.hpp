// The thread that looks after one link: small, detached, deaf to signals, so that many of them cost little and none of
// them takes a signal from the loop that waits for it.
#pragma once
#include <functional>

namespace dslaunch::spawn {

// Runs `body`, which must not throw and must own all that it touches. Throws SystemError.
void start_link_thread(std::function<void()> body);

}  // namespace dslaunch::spawn
