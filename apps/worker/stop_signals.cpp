#include "stop_signals.hpp"

#include <csignal>
#include <initializer_list>

namespace dslaunch::worker {
namespace {

volatile std::sig_atomic_t g_signal = 0, g_second_ends = 0;

void on_signal(int number) {
  if (g_signal == 0) g_signal = number;
  if (number == SIGUSR1 || number == SIGUSR2 || g_second_ends == 0) return;
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void install_stop_signals(bool has_agent) {
  g_second_ends = has_agent ? 0 : 1;
  for (int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

bool stop_requested() {
  return g_signal != 0;
}
int stop_signal() {
  return g_signal;
}

}  // namespace dslaunch::worker
