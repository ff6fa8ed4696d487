# test_media.mk
#
# Media health: one set of tests, built against fakes of libndctl, which take
# the library's place, and once more without it.  To be included by Makefile.

test_media_SRCS := $(PMEM)/pool/pcache_media_ndctl.c
$(OUT)/test_media: override CPPFLAGS += -DFRONTEND -DUSE_LIBNDCTL

# A rule of its own: test_media_none.c includes other .c files, which must not
# be compiled once more on their own.
$(OUT)/test_media_none: test_media_none.c test_media.c \
		$(PMEM)/pool/pcache_media_none.c $(LIBPCACHE)
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(CPPFLAGS) -DFRONTEND -o $@ $< $(LIBPCACHE) -lcmocka $(PGLIBS) $(LIBS) -lm
