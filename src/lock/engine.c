/* JavaScriptCore (since 2.54) looks out for changes of the time zone: a thread that watches a file.
 * Programs that run the engine have one thread and see no files, and their time zone stays. This
 * stands in for the engine's own function of that name, which is found here first because the
 * program exports it (meson.build). */

void _ZN3WTF36listenForTimeZoneChangeNotificationsEv(void);

void _ZN3WTF36listenForTimeZoneChangeNotificationsEv(void) {
}
