// A host's name as it is compared: DNS knows no case, and a dot at its end says only that it is complete. Pure.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::hostfile {

std::string plain_name(std::string_view host);

bool same_host(std::string_view a, std::string_view b);

}  // namespace dslaunch::hostfile
