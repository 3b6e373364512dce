#include "launch/event_loop/signal_inbox.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

using namespace dslaunch::launch;

namespace {

bool is_blocked(int signal) {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return ::sigismember(&now, signal) == 1;
}

}  // namespace

TEST_CASE("an inbox blocks its signals during its lifetime only", "[launch][signal_inbox]") {
  {
    SignalInbox inbox{SIGINT, SIGTERM};
    CHECK((is_blocked(SIGINT) && is_blocked(SIGTERM)));
    ::kill(::getpid(), SIGTERM);
    CHECK(inbox.take() == SIGTERM);
    CHECK_FALSE(inbox.take());
  }
  CHECK_FALSE(is_blocked(SIGINT));
  CHECK_FALSE(is_blocked(SIGTERM));
}

TEST_CASE("SIGTERM is taken before other signals", "[launch][signal_inbox]") {
  SignalInbox inbox{SIGINT, SIGTERM};
  ::kill(::getpid(), SIGTERM);
  ::kill(::getpid(), SIGINT);
  CHECK(inbox.take() == SIGTERM);
  CHECK(inbox.take() == SIGINT);
  CHECK_FALSE(inbox.take());
}

TEST_CASE("a user signal between two inboxes is kept for the second", "[launch][signal_inbox]") {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  { SignalInbox first{SIGUSR2}; }
  ::kill(::getpid(), SIGUSR2);
  {
    SignalInbox second{SIGUSR2};
    CHECK(second.take() == SIGUSR2);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("a signal that was blocked before stays blocked", "[launch][signal_inbox]") {
  sigset_t hup, before;
  ::sigemptyset(&hup);
  ::sigaddset(&hup, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &hup, &before);
  { SignalInbox inbox{SIGHUP}; }
  CHECK(is_blocked(SIGHUP));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
