# src/bin/pg_pcache/nls.mk
CATALOG_NAME     = pg_pcache
# The build links the pool's sources here, as pcache_*.c, which are listed where they
# are.  All of their messages are marked with _() or ngettext(); most of ours are
# arguments of the triggers below.
PG_PCACHE_SOURCES = $(filter-out pcache_%.c,$(notdir $(wildcard $(srcdir)/*.c)))
PCACHE_POOL_SOURCES = $(wildcard $(addprefix $(srcdir)/../../backend/storage/,buffer/pmem/pool/*.c pmem/*.c))
GETTEXT_FILES    = $(FRONTEND_COMMON_GETTEXT_FILES) \
                   $(sort $(PG_PCACHE_SOURCES)) \
                   $(sort $(PCACHE_POOL_SOURCES:$(srcdir)/%=%)) \
                   ../../common/controldata_utils.c \
                   ../../common/fe_memutils.c \
                   ../../common/file_utils.c \
                   ../../fe_utils/connect_utils.c \
                   ../../fe_utils/option_utils.c \
                   ../../fe_utils/query_utils.c \
                   ../../fe_utils/string_utils.c
GETTEXT_TRIGGERS = $(FRONTEND_COMMON_GETTEXT_TRIGGERS)
GETTEXT_FLAGS    = $(FRONTEND_COMMON_GETTEXT_FLAGS)
