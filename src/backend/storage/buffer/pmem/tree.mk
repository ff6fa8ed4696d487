# src/backend/storage/buffer/pmem/tree.mk
#
# What the library (Makefile here) and the program (src/bin/pg_pcache) have in common
# when they are built in the patched tree; module.mk is the same for other servers.
# To be included behind Makefile.global.
#
#	PCACHE_CPPFLAGS		for the preprocessor, before those of the tree
#	PCACHE_LIBS			the libraries that configure and pkg-config have found
#	PCACHE_POOL_OBJS	what library and program share, compiled for each

pool_dir = $(top_srcdir)/src/backend/storage/buffer/pmem/pool
persist_dir = $(top_srcdir)/src/backend/storage/pmem

# The compiler sees pcache_compat.h before any source, as elsewhere.
PCACHE_CPPFLAGS = -I$(pool_dir) -include $(top_srcdir)/src/include/storage/pcache_compat.h
PCACHE_LIBS = $(LIBPMEM_LIBS) $(LIBNDCTL_LIBS)

# configure does not ask for this one
ifneq ($(WITH_LIBXXHASH),no)
ifeq ($(shell pkg-config --exists libxxhash 2>/dev/null && echo yes),yes)
PCACHE_CPPFLAGS += -DUSE_XXHASH=1 $(shell pkg-config --cflags libxxhash)
PCACHE_LIBS += $(shell pkg-config --libs libxxhash)
endif
endif

# Each pair of *_LIBRARY.c and *_none.c is compiled to one empty object.
PCACHE_POOL_OBJS = $(patsubst %.c,%.o,$(sort $(notdir \
	$(wildcard $(pool_dir)/*.c) $(wildcard $(persist_dir)/*.c))))

vpath %.c $(pool_dir) $(persist_dir)
