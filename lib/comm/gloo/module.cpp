// The exports of libdslaunch_gloo.so.
#include <dlfcn.h>
#include <gloo/transport/tcp/device.h>

#include "comm/gloo/communicator.hpp"

extern "C" {

__attribute__((visibility("default"))) const char* dslaunch_module_version() {
  return DSL_VERSION;
}

__attribute__((visibility("default"))) dslaunch::comm::Communicator* dslaunch_make_gloo(
    const dslaunch::comm::CommunicatorOptions& options, dslaunch::rendezvous::Store& store) {
  return new dslaunch::comm::GlooCommunicator(options, store);
}

// The file that provides gloo: the test checks that it is not LibTorch's.
__attribute__((visibility("default"))) const char* dslaunch_gloo_library() {
  static std::string path = [] {
    Dl_info info{};
    auto* function = reinterpret_cast<void*>(&gloo::transport::tcp::CreateDevice);
    return std::string(::dladdr(function, &info) && info.dli_fname ? info.dli_fname : "unknown");
  }();
  return path.c_str();
}
}
