#include "hostfile/plain_name.hpp"

#include <algorithm>
#include <cctype>

namespace dslaunch::hostfile {
namespace {

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

std::string_view without_last_dot(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  return host;
}

}  // namespace

std::string plain_name(std::string_view host) {
  std::string name(without_last_dot(host));
  std::transform(name.begin(), name.end(), name.begin(), lower);
  return name;
}

bool same_host(std::string_view a, std::string_view b) {
  return std::ranges::equal(without_last_dot(a), without_last_dot(b), {}, lower, lower);
}

}  // namespace dslaunch::hostfile
