# test_media.mk
#
# Media health: built against a fake of libndctl, which takes the library's place.  To be
# included by Makefile.

test_media_SRCS := $(PMEM)/pool/pcache_media_ndctl.c
$(OUT)/test_media: override CPPFLAGS += -DFRONTEND -DUSE_LIBNDCTL
