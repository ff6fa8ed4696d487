# test_media.mk
#
# Media health and memory tiers: a set of tests each, built against fakes of
# libndctl and libdaxctl, which take the libraries' place, and once more without
# them.  To be included by Makefile.

test_media_SRCS := $(PMEM)/pool/pcache_media_ndctl.c
test_memory_tier_SRCS := $(PMEM)/pool/pcache_media_daxctl.c
$(OUT)/test_media $(OUT)/test_memory_tier: override CPPFLAGS += -DFRONTEND -DUSE_LIBNDCTL

# A rule of its own: test_media_none.c includes other .c files, which must not
# be compiled once more on their own.
$(OUT)/test_media_none: $(PMEM)/pool/pcache_media_none.c
$(OUT)/test_memory_tier_none: $(PMEM)/pool/pcache_media_dax_none.c
$(OUT)/test_media_none $(OUT)/test_memory_tier_none: $(OUT)/%_none: %_none.c %.c $(LIBPCACHE)
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(CPPFLAGS) -DFRONTEND -o $@ $< $(LIBPCACHE) -lcmocka $(PGLIBS) $(LIBS) -lm
