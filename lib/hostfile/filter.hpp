// --include and --exclude in DeepSpeed's syntax: NODE[@NODE...], NODE = name[:slot[,slot...]], for example
// "host:0,2@host2". A name alone means all slots of the host; the slots of a repeated name are joined. An IPv6 address
// must be in brackets. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "hostfile/allocation.hpp"

namespace dslaunch::hostfile {

enum class FilterKind { kInclude, kExclude };

// The remaining hosts, in the order of `hosts`; a host without slots is dropped. Throws UserError(65) that lists every
// mistake (syntax errors with column, unknown hosts and slots with the existing ones), or when no host remains.
std::vector<Host> apply_filter(FilterKind kind, std::string_view filter, const std::vector<Host>& hosts);

// The hosts that the filter names, in the order of first mention; if the filter is malformed, those that can be parsed.
std::vector<std::string> names_of_filter(std::string_view filter);

// The highest slot that the filter names; -1 when it names none or is malformed.
int highest_slot_named(std::string_view filter);

}  // namespace dslaunch::hostfile
