#include "engine/core/build_name.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "parallel/base/status.h"

namespace moe {
namespace {

constexpr size_t kIdBytes = 8;

size_t RoundUp4(size_t n) {
  return (n + 3) / 4 * 4;
}

// The GNU build-id among the notes [note, end), in hexadecimal.
std::string FindId(const char* note, const char* end) {
  while (static_cast<size_t>(end - note) >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof(header));
    const char* name = note + sizeof(header);
    const char* id = name + RoundUp4(header.n_namesz);
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string text;
      for (size_t i = 0; i < header.n_descsz && i < kIdBytes; ++i) {
        constexpr const char* kDigits = "0123456789abcdef";
        const auto byte = static_cast<uint8_t>(id[i]);
        text += {kDigits[byte >> 4], kDigits[byte & 15]};
      }
      return text;
    }
    note = id + RoundUp4(header.n_descsz);
  }
  return "";
}

int OfExecutable(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* notes = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    std::string id = FindId(notes, notes + header.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(result) = std::move(id);
  }
  return 1;  // the first object is the executable: no other one
}

}  // namespace

std::string BuildName() {
  std::string id;
  dl_iterate_phdr(OfExecutable, &id);
  return id.empty() ? MOE_VERSION : Cat(MOE_VERSION, " (build ", id, ")");
}

}  // namespace moe
