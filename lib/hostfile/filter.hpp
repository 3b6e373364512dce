// --include and --exclude in DeepSpeed's syntax: NODE[@NODE...], NODE = name[:slot[,slot...]], for example
// "host:0,2@host2". A bare name means all slots of the host; a name that is repeated joins its slots. An IPv6 address
// stands in brackets. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "hostfile/allocation.hpp"

namespace dslaunch::hostfile {

enum class FilterKind { kInclude, kExclude };

// What is left of `hosts`, in their order; a host without slots is dropped. Throws UserError(65) that lists every
// mistake (syntax with its column, unknown hosts and slots with what there is), or when nothing is left.
std::vector<Host> apply_filter(FilterKind kind, std::string_view filter, const std::vector<Host>& hosts);

// The hosts that the filter names, in the order of first mention; whatever is readable where it is not well-formed.
std::vector<std::string> names_of_filter(std::string_view filter);

// The highest slot that the filter names; -1 when it names none or is not well-formed.
int highest_slot_named(std::string_view filter);

}  // namespace dslaunch::hostfile
