/* Reads the name (DT_SONAME) of a 64-bit library. */
#include "base/base.h"
#include "devices/plan.h"

#include <elf.h>
#include <unistd.h>

#define DYNAMIC_MAX 4096 /* bytes of the dynamic section */

static int read_at(int fd, void *to, size_t n, uint64_t at)
{
	return at < INT64_MAX && pread(fd, to, n, (off_t)at) == (ssize_t)n ? 0 : -ENOENT;
}

/* The place in the file of what is at an address. */
static uint64_t place(const Elf64_Phdr *p, unsigned n, uint64_t address)
{
	for (unsigned i = 0; i < n; i++)
		if (p[i].p_type == PT_LOAD && address >= p[i].p_vaddr && address - p[i].p_vaddr < p[i].p_filesz)
			return p[i].p_offset + (address - p[i].p_vaddr);
	return UINT64_MAX;
}

int elf_soname(int fd, char *ret, size_t size)
{
	Elf64_Dyn dynamic[DYNAMIC_MAX / sizeof(Elf64_Dyn)];
	uint64_t name = UINT64_MAX, strings = UINT64_MAX;
	Elf64_Phdr p[16], *d = NULL;
	Elf64_Ehdr h;
	ssize_t n;

	if (read_at(fd, &h, sizeof(h), 0) < 0 || memcmp(h.e_ident, ELFMAG, SELFMAG) ||
	    h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_type != ET_DYN || h.e_phentsize != sizeof(*p) || !h.e_phnum ||
	    h.e_phnum > ARRAY_LEN(p) || read_at(fd, p, h.e_phnum * sizeof(*p), h.e_phoff) < 0)
		return -ENOENT;
	for (unsigned i = 0; i < h.e_phnum; i++)
		if (p[i].p_type == PT_DYNAMIC)
			d = &p[i];
	if (!d || d->p_filesz > sizeof(dynamic) || read_at(fd, dynamic, d->p_filesz, d->p_offset) < 0)
		return -ENOENT;
	for (size_t i = 0; i < d->p_filesz / sizeof(*dynamic) && dynamic[i].d_tag != DT_NULL; i++) {
		if (dynamic[i].d_tag == DT_SONAME)
			name = dynamic[i].d_un.d_val;
		else if (dynamic[i].d_tag == DT_STRTAB)
			strings = place(p, h.e_phnum, dynamic[i].d_un.d_ptr);
	}
	if (name > UINT32_MAX || strings > INT64_MAX)
		return -ENOENT;
	n = pread(fd, ret, size - 1, (off_t)(strings + name));
	if (n <= 0)
		return -ENOENT;
	ret[n] = '\0';
	return strlen(ret) < (size_t)n && ret[0] && ret[0] != '.' && !strchr(ret, '/') ? 0 : -ENOENT;
}
