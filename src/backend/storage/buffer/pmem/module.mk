# src/backend/storage/buffer/pmem/module.mk
#
# What the library (Makefile.module here) and the program (Makefile.module in
# src/bin/pg_pcache) have in common when they are built for an unpatched server.
# Both are built by PGXS outside of the sources, and include this file first:
#
#	PCACHE_TOP			the root of our sources
#	PCACHE_CPPFLAGS		for the preprocessor, before what PGXS adds
#	PCACHE_LIBS			the libraries that were found, for the linker
#	PCACHE_POOL_OBJS	what library and program share, compiled for each
#
# WITH_LIBPMEM=no, WITH_LIBNDCTL=no and WITH_LIBXXHASH=no leave out a library that is
# there; "yes" insists on one.

PCACHE_TOP := $(patsubst %/src/backend/storage/buffer/pmem/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
PCACHE_POOL_DIR := $(PCACHE_TOP)/src/backend/storage/buffer/pmem/pool
PCACHE_PERSIST_DIR := $(PCACHE_TOP)/src/backend/storage/pmem

PG_CONFIG ?= pg_config
PKG_CONFIG ?= pkg-config
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) belongs to no server that extensions can be built for; \
Debian has what is missing in postgresql-server-dev-NN)
endif

# The compiler sees pcache_compat.h before any source, so no source asks for the
# major version.
PCACHE_CPPFLAGS := -I$(PCACHE_TOP)/src/include -I$(PCACHE_POOL_DIR) \
	-idirafter $(PCACHE_TOP)/src/include/pcache_compat \
	-include $(PCACHE_TOP)/src/include/storage/pcache_compat.h

# pcache_library VARIABLE,USE_MACRO,PKG_CONFIG_NAMES
define pcache_library
ifneq ($$($(1)),no)
ifeq ($$(shell $$(PKG_CONFIG) --exists $(3) 2>/dev/null && echo yes),yes)
PCACHE_CPPFLAGS += -D$(2)=1 $$(shell $$(PKG_CONFIG) --cflags $(3))
PCACHE_LIBS += $$(shell $$(PKG_CONFIG) --libs $(3))
else ifeq ($$($(1)),yes)
$$(error $(1)=yes, but pkg-config does not find $(3))
else
PCACHE_LEFT_OUT += $(3)
endif
endif
endef
$(eval $(call pcache_library,WITH_LIBPMEM,USE_LIBPMEM,libpmem))
$(eval $(call pcache_library,WITH_LIBNDCTL,USE_LIBNDCTL,libndctl))
$(eval $(call pcache_library,WITH_LIBXXHASH,USE_XXHASH,libxxhash))

# Each pair of *_LIBRARY.c and *_none.c is compiled to one empty object.
PCACHE_POOL_OBJS := $(patsubst %.c,%.o,$(sort $(notdir \
	$(wildcard $(PCACHE_POOL_DIR)/*.c) $(wildcard $(PCACHE_PERSIST_DIR)/*.c))))

vpath %.c $(PCACHE_POOL_DIR) $(PCACHE_PERSIST_DIR)

# No bitcode: none of our functions is called from an expression, and clang is not
# needed then.
override with_llvm := no
