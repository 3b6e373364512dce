// Normalizes a host name for comparison: DNS ignores case, and a trailing dot only marks the name as fully qualified.
// Pure.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::hostfile {

std::string plain_name(std::string_view host);

bool same_host(std::string_view a, std::string_view b);

}  // namespace dslaunch::hostfile
